"""Many tasks at once: enqueue a list in chunks, wait for all, and read the results. Imported on first use."""
