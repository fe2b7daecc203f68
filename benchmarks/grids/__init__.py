"""One module per question: measures a grid of rows on a device."""
