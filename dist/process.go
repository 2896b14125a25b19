package dist

import "context"

// Run runs fn on every rank of a job and returns when all are done. Without a launcher, it makes cfg.Ranks ranks, each a
// goroutine with its own Device. The error is the first failure of any rank: an error that fn returned, a panic with its
// stack, a failed collective. The other ranks are then ended: their operations and ctx fail. When ctx ends, all groups
// are aborted.
func Run(ctx context.Context, cfg Config, fn func(ctx context.Context, r *Rank) error) error {
	return runLocal(ctx, cfg, max(cfg.Ranks, 1), fn)
}
