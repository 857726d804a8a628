"""The Debian package: what is in it (`environment`), and how it is built (`__main__`)."""
