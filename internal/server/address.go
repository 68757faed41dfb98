package server

import (
	"net"
	"strings"
)

// GatewayURL returns the URL of the data plane for a client on this machine, without a slash at
// its end.
func (s *Server) GatewayURL() string { return clientURL(s.cfg.Settings.GatewayTLS(), s.GatewayAddr()) }

// AdminURL returns the URL of the management API for a client on this machine, with the base
// path and without a slash at its end. With a slash it is the URL of the dashboard.
func (s *Server) AdminURL() string {
	if s.listeners.admin == nil {
		return ""
	}
	return clientURL(len(s.cfg.Settings.AdminTLS) > 0, s.AdminAddr()) + strings.TrimSuffix(s.cfg.Settings.AdminBasePath, "/")
}

// OpsURL returns the URL of /readyz and /metrics for a client on this machine, without a slash at
// its end.
func (s *Server) OpsURL() string { return clientURL(false, s.OpsAddr()) }

// clientURL returns the URL of the listener at addr, with TLS or without. A wildcard
// address becomes the loopback address.
func clientURL(secured bool, addr string) string {
	scheme := "http://"
	if secured {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return scheme + addr
}
