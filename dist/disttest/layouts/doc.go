// Package layouts has a test of random layouts; it exports nothing. A random program, which is a model and how it is trained, is trained on
// one rank and on a random layout of ranks: copies (ddp), sharded copies (fsdp), divided layers (tp), divided sequences (cp and its ring),
// divided experts (moe) and, for every other seed, stages of a pipeline (pp), in all combinations. The results must be equal. A checkpoint
// that the first layout saved at a random step is loaded on a second random layout, which must end as the first one did.
//
//   - program_test.go: what must not depend on the layout;
//   - layout_test.go: how ranks share the work, and the table of what is refused;
//   - attach_test.go: the order in which the packages divide a model. Read it if you want to combine them;
//   - layouts_test.go: the test;
//   - factors_test.go: that seeds have all pairs of what layouts and programs can have;
//   - axes_test.go: axes of one rank each, and 32 ranks with all axes at once.
//
// A program in which an ulp at the start grows to a hundredth of the tolerance is not compared: rounding, in sums of another order, would
// do the same. That is one in 25.
//
// Each program, with its layouts, is a function of a seed. See CONTRIBUTING.md for the variables that choose seeds.
package layouts
