package sqlite_test

import "github.com/keygate/keygate/internal/ratelimit"

// rate parses a valid rate.
func rate(s string) ratelimit.Rate {
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}
