package disttest

import "testing"

func (s *suite) errors(t *testing.T)    {}
func (s *suite) lifetimes(t *testing.T) {}
