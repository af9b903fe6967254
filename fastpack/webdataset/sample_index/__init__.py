"""`index.sqlite` of a prepared WebDataset: reader, writer, media tables."""
