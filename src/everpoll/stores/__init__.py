"""Stores: where tasks live. One contract, one folder per database."""
