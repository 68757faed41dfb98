package sqlite_test

import "github.com/keygate/keygate/internal/ratelimit"

// rate reads a rate that is known to be right.
func rate(s string) ratelimit.Rate {
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}
