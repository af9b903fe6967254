"""A prepared WebDataset for people: mounted as a folder, or shown as text."""
