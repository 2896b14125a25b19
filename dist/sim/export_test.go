package sim

// Table compares text with a file in testdata.
var Table = table
