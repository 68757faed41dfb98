package server

import (
	"context"
	"fmt"
)

// The file descriptors that a server keeps for everything except the data plane. The shares of the
// limit are bounded from below and above.
const (
	fixedFiles = 64 // the store (at most 30), listeners, lock, logs, certificates, poller, standard streams
	// maxClosing is how many connections beyond a bound are about to be closed at a time.
	maxClosing = 8

	minFiles = 192 // below it a server does not start
)

// descriptors is how a server shares the file descriptors of the process out (contract,
// section 1). A field that is zero has its own default.
type descriptors struct {
	clients   int // connections of the data plane
	upstreams int // descriptors for connections to upstreams, dials included
	admin     int // connections of the management listener
	ops       int // connections of the listener of probes and metrics
	acme      int // connections of --acme-http-addr
	hooks     int // webhook deliveries in flight
	pipes     int // pipes for long bodies, of two descriptors each
}

// perAddress returns how many clients may be from one address. If fewer clients than configured are
// possible, one address cannot take all of them: it gets at most three quarters.
func (d descriptors) perAddress(maxConnections, maxPerAddress int) int {
	if d.clients >= maxConnections {
		return maxPerAddress
	}
	return min(maxPerAddress, max(d.clients*3/4, 1))
}

const defaultAdminSlots, defaultOpsSlots, defaultACMESlots = 512, 128, 256

// shareDescriptors shares out the descriptors that a process may open, for at most
// maxConnections clients. limited is false if there is no limit. It fails if files is below
// minFiles.
func shareDescriptors(files uint64, limited bool, maxConnections int) (d descriptors, err error) {
	d = descriptors{clients: maxConnections, admin: defaultAdminSlots, ops: defaultOpsSlots}
	if !limited || files > 1<<31 {
		return d, nil
	}
	if files < minFiles {
		return d, fmt.Errorf(
			"the limit of open files is %d, and at least %d are needed: raise it with LimitNOFILE= in systemd, --ulimit nofile= in Docker, or ulimit -n",
			files, minFiles)
	}
	n := int(files)
	d.admin = min(max(n/16, 16), defaultAdminSlots)
	d.ops = min(max(n/32, 8), defaultOpsSlots)
	d.hooks = min(max(n/16, 16), 2048)
	d.pipes = min(max(n/64, 2), 512)
	// A delivery in flight may look up a name, and half as many connections are kept idle.
	left := n - fixedFiles - maxClosing - d.admin - d.ops - 2*d.hooks - 2*d.pipes
	// The last ninth of the upstreams' descriptors is kept for upstreams that have few.
	d.clients = min(maxConnections, left*8/17)
	d.upstreams = left - d.clients
	return d, nil
}

// divideDescriptors sets how the descriptors of this process are shared out. Go has raised the
// limit to the highest that the process may set. It warns if --max-connections is lowered.
func (s *Server) divideDescriptors(context.Context) (err error) {
	files, limited := maxFiles()
	wanted := s.cfg.Settings.MaxConnections
	if s.descriptors, err = shareDescriptors(files, limited, wanted); err != nil {
		return err
	}
	if s.cfg.Settings.ACME.HTTPAddr != "" {
		s.descriptors.acme = min(defaultACMESlots, max(s.descriptors.clients/16, 1))
		if limited { // they are part of those of the data plane
			s.descriptors.clients -= s.descriptors.acme
		}
	}
	if got := s.descriptors.clients; got < wanted {
		s.log.Warn("max-connections is lowered to what the limit of open files allows: raise the limit with LimitNOFILE= in systemd or --ulimit nofile= in Docker, or lower --max-connections",
			"max_connections", wanted, "lowered_to", got,
			"from_one_address", s.descriptors.perAddress(wanted, s.cfg.Settings.MaxConnectionsPerAddress), "open_files", files, "for_upstreams", s.descriptors.upstreams,
			"for_everything_else", int(min(files, 1<<31))-got-s.descriptors.upstreams)
	}
	return nil
}
