"""A picture gallery: uploads, thumbnails made by a worker, mails, and a nightly report."""
