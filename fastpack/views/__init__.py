"""Looking at what there is: facts for a person, the first samples, a dataset as a folder."""
