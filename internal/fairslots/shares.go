package fairslots

// OfFree is how many times as much as all accounts leave free an account may have of what is bounded by Shares.
const OfFree = 3

// Shares bounds what accounts, of the type A, take of something. An account may take more while it has less than OfFree times as much
// as all accounts leave free, so that no account takes all of it. It is not safe for concurrent use.
type Shares[A comparable] struct {
	most, taken int
	of          map[A]int
}

// NewShares returns shares of which most can be taken in all.
func NewShares[A comparable](most int) Shares[A] { return Shares[A]{most: most, of: map[A]int{}} }

// SetMost sets how much can be taken in all. What was taken stays taken.
func (s *Shares[A]) SetMost(most int) { s.most = most }

// Taken returns how much is taken in all.
func (s *Shares[A]) Taken() int { return s.taken }

// Of returns how much an account has taken.
func (s *Shares[A]) Of(account A) int { return s.of[account] }

// MayTake reports whether an account may take n more, which is 1 at least.
func (s *Shares[A]) MayTake(account A, n int) bool {
	free := s.most - s.taken
	return free >= n && (free >= s.most/2 || s.of[account] < OfFree*free) // with half of it free, no account has too much
}

// Take notes that an account has taken n more.
func (s *Shares[A]) Take(account A, n int) {
	if n != 0 {
		s.taken += n
		s.of[account] += n
	}
}

// Give notes that an account has given back n of what it had taken.
func (s *Shares[A]) Give(account A, n int) {
	s.taken -= n
	if rest := s.of[account] - n; rest > 0 {
		s.of[account] = rest
	} else {
		delete(s.of, account)
	}
}

// Reset gives back everything.
func (s *Shares[A]) Reset() {
	s.taken = 0
	clear(s.of)
}
