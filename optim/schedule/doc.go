// Package schedule has learning rate schedules for optimizers (torch.optim.lr_scheduler).
//
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, Schedule: schedule.Warmup(100, schedule.Cosine(0.1, 900))})
//
// A schedule is a function of the optimizer's steps, and keeps nothing. [Plateau] is for values that training measures.
package schedule
