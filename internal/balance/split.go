package balance

// Share is the share of one side of a split in hundredths of a percent (section 7).
type Share uint16

// MaxShare is all requests.
const MaxShare Share = 100_00

// Split says which requests go to the weighted side of a split. The others go to the route's upstream. What its `when`
// entries decide is not known here.
type Split struct {
	Share    Share
	Sticky   bool // a caller stays on its side
	Fallback bool // while no target of a side takes part, the other side serves
}

// Weighted reports whether a request goes to the weighted side. caller is the HashValue of its principal, which decides if
// the split is sticky: a larger share only adds callers, and every node decides alike. Otherwise n decides, the number of
// the request on this node: of any 10,000 in a row, the share is met to 1 in 1,000.
func (s Split) Weighted(caller, n uint64) bool {
	point := n * golden
	if s.Sticky {
		point = mix(caller ^ splitSalt)
	}
	return below(point, uint64(MaxShare)) < uint64(s.Share)
}

const (
	golden    = 0x9e3779b97f4a7c15 // 2⁶⁴ × 0.6180339887…: n × golden is the fraction of n times that number
	splitSalt = 0x73706c6974207631 // so that sides do not depend on the targets that the policy Hash chooses
)

// Serving returns which side serves a request that belongs to one: that side, or with Fallback the other one while only
// that has a target that takes part. Each argument after the first reports whether a side does, see Upstream.Serves.
func (s Split) Serving(weighted, weightedServes, otherServes bool) (useWeighted bool) {
	switch {
	case !s.Fallback:
		return weighted
	case weighted:
		return weightedServes || !otherServes
	default:
		return weightedServes && !otherServes
	}
}
