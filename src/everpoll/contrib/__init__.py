"""What joins everpoll to a framework; a framework is imported only by the package that has its name here."""
