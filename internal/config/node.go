package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// The values of Config.Role.
const (
	RoleAll     = "all"
	RoleGateway = "gateway"
	RoleControl = "control"
)

// The values of Config.OnDatabaseLoss.
const (
	LossRefuse = "refuse"
	LossServe  = "serve"
)

// The range of Config.LeaseTTL.
const (
	minLeaseTTL = 2 * time.Second
	maxLeaseTTL = 5 * time.Minute
)

// ServesGateway reports whether this node has a data plane.
func (c *Config) ServesGateway() bool { return c.Role != RoleControl }

// ServesAdmin reports whether this node has the management API and what belongs to it.
func (c *Config) ServesAdmin() bool { return c.Role != RoleGateway }

// checkNode completes the name of the node, and returns an error if a setting of several nodes is set
// without a database that they can share.
func (c *Config) checkNode() error {
	if c.Shared() {
		if c.NodeName == "" {
			name, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("read the name of this host: %w; set --node-name", err)
			}
			return parseNodeName(&c.NodeName, name)
		}
		return nil
	}
	for _, name := range []string{"role", "node-name", "lease-ttl", "on-database-loss", "database-listen-url", "spool-max-bytes"} {
		if origin := c.origins[name]; origin.Kind != Default {
			return &Error{origin, errors.New("is for several nodes, which share a PostgreSQL database: set --database-url too, or remove it")}
		}
	}
	return nil
}

func parseNodeName(to *string, s string) error {
	if len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return fmt.Errorf("%q is not a valid node name: must be at most 255 printable ASCII characters without spaces and slashes", s)
	}
	*to = s
	return nil
}

func parseLeaseTTL(to *time.Duration, s string) error {
	if err := parseDuration(to, s); err != nil {
		return err
	}
	if *to < minLeaseTTL || *to > maxLeaseTTL {
		return fmt.Errorf("%q is out of range: must be between %s and %s", cmp.Or(s, "0s"), minLeaseTTL, "5m")
	}
	return nil
}
