// Package viz draws the pictures of `ringo viz`, as SVG: the messages of a collective (Record, Scene), a schedule of pipeline parallelism
// (Schedule), and what the buckets of ddp hide (Passes).
package viz
