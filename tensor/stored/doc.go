// Package stored says how files hold a parameter that they have in parts: a stack of experts that each have a tensor of their own, or
// queries, keys and values that lie in one. A [Segment] is one of these parts, and [Check] looks whether some of them are a whole
// parameter. This package knows no tensor; tensor.Stored is another name of Segment.
package stored
