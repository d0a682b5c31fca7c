"""Device clocks and UTC: `calibrate` finds a map for every clock and an instant for every row of a recording."""
