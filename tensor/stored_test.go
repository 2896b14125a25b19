package tensor_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
)

func TestStored(t *testing.T) {
	p := NewParam(Constant(0), 4, 3)
	assert.Nil(t, p.Stored())
	as := []Stored{{Name: "k", Rows: 2, Total: 2}, {Name: "v", Rows: 1, First: 1, Total: 3}, {Name: "v", Rows: 1, Total: 3}}
	want := slices.Clone(as)
	p.SetStored(as)
	as[0].Name = "other"
	assert.Equal(t, want, p.Stored(), "a copy")
	p.SetStored(nil)
	assert.Nil(t, p.Stored())

	p.Place(axis(1, 2), layout.Division{})
	p.SetStored(want)
	assert.Equal(t, want, p.Stored(), "the rows are the model's, whatever the rank holds")
}

func TestStoredMisuse(t *testing.T) {
	p := NewParam(Constant(0), 4, 3)
	p.SetName("kv")
	err := Try(func() { p.SetStored([]Stored{{Name: "a", Rows: 3, Total: 3}}) })
	assert.EqualError(t, err, "SetStored kv: shape [4 3]: the segments [a[0:3 of 3]] have 3 of 4 rows (at "+err.(*Failure).At+")")
	assert.Nil(t, p.Stored())
}
