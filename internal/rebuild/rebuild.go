package rebuild

import (
	"fmt"
	"os"
)

// Env names the variable that `ringo run -rebuild` sets to 1.
const Env = "RINGO_REBUILD"

// Asked reports whether the ranks shall go on when others are lost.
func Asked() bool { return os.Getenv(Env) == "1" }

// Refuse returns the error of a package that cannot do so, because its ranks hold different parameters or sequences. It is nil without
// -rebuild.
func Refuse(pkg string) error {
	if !Asked() {
		return nil
	}
	return fmt.Errorf("%s: ringo run -rebuild goes on without a lost rank, but %s divides parameters or sequences among the ranks, "+
		"and what a lost rank held is lost: use -max-restarts with checkpoints instead", pkg, pkg)
}
