// Command tp measures training steps of a transformer whose layers are divided over ranks: 4 layers with 512 features, on 8 × 128 tokens.
// peer.py does the same with PyTorch's DTensor. For each number of seconds, in its arguments or else on its standard input, it trains for
// about that time and prints a line of JSON. The script beside it runs the two in turn. BenchmarkHosts has two ranks as hosts, joined by a
// slow link.
package main
