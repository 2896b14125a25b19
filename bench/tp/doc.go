// Command tp measures training steps of a transformer of 4 layers with 512 features, on 8 × 128 tokens, whose layers ranks divide, as
// peer.py does with PyTorch's DTensor: for each number of seconds, given as an argument or else on its standard input, it trains for about that long and prints a line
// of JSON. The script beside it runs both by turns. BenchmarkHosts has two ranks as hosts, joined by a slow link.
package main
