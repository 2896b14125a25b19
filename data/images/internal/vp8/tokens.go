package vp8

// Coefficients are coded by what they are of (RFC 6386, 13.3): brightness but for the first ones, these, color, and brightness.
const (
	withoutFirst = iota
	firsts
	color
	brightness
	planes

	bands, contexts, tokenProbs = 8, 3, 11
)

// probs are the probabilities of tokens by the place of the coefficient and the size of the one before.
type probs [16][contexts][tokenProbs]byte

var (
	bandOf = [16]byte{0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7}
	zigzag = [16]byte{0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15}
	extra  = [4][]byte{{173, 148, 140}, {176, 155, 140, 135}, {180, 157, 141, 134, 130},
		{254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129}}
)

// steps are those of the first coefficient and of the others.
type steps struct{ dc, ac int32 }

// block reads coefficients from number `first` on, and returns 1 if there are any. This is where decoding takes its time: what it knows of
// the reader is in registers, and a Boolean that is likely the one or the other is a branch.
func (r *reader) block(all *probs, first, context int, q steps, to *[16]int16) byte {
	value, last, n, before := r.value, r.last, r.n, 0
	i, zero := first, false
	for ; i < 16; i++ {
		p := &all[i][context]
		value, n = r.fill(value, n)
		if !zero {
			before = n
			low := part(last, p[0])
			if value>>56 <= low { // no more
				value, last, n = lower(value, low, n)
				break
			}
			value, last, n = upper(value, last, low, n)
		}
		before = n
		low := part(last, p[1])
		if zero = value>>56 <= low; zero {
			value, last, n = lower(value, low, n)
			context = 0
			continue
		}
		value, last, n = upper(value, last, low, n)
		v, sign := uint64(1), uint64(0)
		context = 1
		if low = part(last, p[2]); value>>56 <= low {
			value, last, n = lower(value, low, n)
		} else {
			value, last, n = upper(value, last, low, n)
			value, last, n, v = r.large(p, value, last, n)
			context = 2
		}
		before = n
		value, last, n, sign = number(value, last, n, 128)
		step := q.ac
		if i == 0 {
			step = q.dc
		}
		to[zigzag[i]] = int16((int32(v)*step ^ -int32(sign)) + int32(sign))
	}
	r.value, r.last, r.n, r.short = value, last, n, r.short || before < 8
	if i == first {
		return 0
	}
	return 1
}

// large reads a coefficient from 2 on, and leaves bits for its sign.
func (r *reader) large(p *[tokenProbs]byte, value, last uint64, n int) (uint64, uint64, int, uint64) {
	var v, b uint64
	value, n = r.fill(value, n)
	value, last, n, b = number(value, last, n, p[3])
	if b == 0 {
		value, last, n, v = number(value, last, n, p[4])
		if v > 0 {
			value, last, n, b = number(value, last, n, p[5])
		}
		return value, last, n, 2 + v + b
	}
	value, last, n, b = number(value, last, n, p[6])
	value, n = r.fill(value, n)
	if b == 0 {
		value, last, n, v = number(value, last, n, p[7])
		if v == 0 {
			value, last, n, b = number(value, last, n, 159)
			return value, last, n, 5 + b
		}
		value, last, n, v = number(value, last, n, 165)
		value, last, n, b = number(value, last, n, 145)
		return value, last, n, 7 + 2*v + b
	}
	value, last, n, v = number(value, last, n, p[8])
	value, last, n, b = number(value, last, n, p[9+v])
	v = 2*v + b
	most := 3 + 8<<v
	kind := extra[v]
	v = 0
	for _, p := range kind {
		value, n = r.fill(value, n)
		value, last, n, b = number(value, last, n, p)
		v = 2*v + b
	}
	value, n = r.fill(value, n)
	return value, last, n, v + uint64(most)
}
