// Package rebuild tells whether the job was started with `ringo run -rebuild`: when ranks are lost, the others go on. It has the error of
// packages that cannot do so.
package rebuild
