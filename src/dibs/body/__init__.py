"""The JSON that dibs is given: one body for each thing, the same in a file and over HTTP, refused where it is wrong."""
