package config

import (
	"errors"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
)

// parseRedis parses the address of the limit store. The errors do not contain it, because it may
// hold a password.
func parseRedis(to **limitstore.Address, s string) (err error) {
	if *to = nil; s != "" {
		*to, err = limitstore.ParseAddress(s)
	}
	return err
}

func parseSharedLimits(to *ratelimit.Mode, s string) error {
	if *to = ""; s == "" {
		return nil // completed by completeSharedLimits
	}
	return parseWord((*string)(to), s, string(ratelimit.Leased), string(ratelimit.Exact), string(ratelimit.Divided))
}

// completeSharedLimits sets the default of SharedLimits, and returns an error if what is set needs
// a limit store.
func (c *Config) completeSharedLimits() error {
	switch {
	case c.SharedLimits == "" && c.Redis != nil:
		c.SharedLimits = ratelimit.Leased
	case c.SharedLimits == "":
		c.SharedLimits = ratelimit.Divided
	case c.SharedLimits != ratelimit.Divided && c.Redis == nil:
		return &Error{c.origins["shared-limits"], errors.New(string(c.SharedLimits) + " needs a limit store: set --redis-url, or write divided")}
	}
	return nil
}

func (c *Config) redisText() string {
	if c.Redis == nil {
		return ""
	}
	return c.Redis.String()
}
