package moe_test

import (
	"math"

	"github.com/ringo-ml/ringo/moe/router"
)

// routers are the routers of tests over 8 experts.
var routers = map[string]router.Config{
	"switch":       {Top: 1},
	"qwen":         {Top: 3, Normalize: true},
	"mixtral":      {Top: 2, Scoring: router.Chosen},
	"all of them":  {Top: 8, Scoring: router.Sigmoid},
	"sigmoid":      {Top: 2, Scoring: router.Sigmoid, Bias: true, Normalize: true, Scale: 2.5},
	"deepseek":     {Top: 3, Scoring: router.Sigmoid, Bias: true, Groups: 4, TopGroups: 2, Normalize: true, Scale: 2.5},
	"softmax bias": {Top: 2, Bias: true, Groups: 2, TopGroups: 1},
}

// values returns numbers that follow no pattern.
func values(dims ...int) (list []float64) {
	n := 1
	for _, d := range dims {
		n *= d
	}
	for i := range n {
		list = append(list, math.Sin(float64(3*i*i+i+1)))
	}
	return list
}
