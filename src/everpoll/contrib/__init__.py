"""Support for frameworks: each has a package of its own, which alone imports the framework."""
