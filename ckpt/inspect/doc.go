// Package inspect looks at checkpoints without a job, and copies them. The command "ringo ckpt" uses it. It takes every
// checkpoint that ckpt.Load reads.
//
//		v, err := inspect.Verify(ctx, "checkpoints/step-00000100", inspect.VerifyConfig{})
//		if !v.OK { fmt.Println(v.Errors) }
//
//	  - list.go: List, the tensors and the step.
//	  - verify.go: Verify, whether a checkpoint is complete and undamaged; layout.go, whether a layout can load it.
//	  - diff.go: Diff, in which values two checkpoints differ. decode.go turns bytes into numbers.
//	  - convert.go: Convert, a copy in another type or other files; torch.go, of a checkpoint of PyTorch.
package inspect
