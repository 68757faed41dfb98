package limitstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Address says where the store is, and how to sign in. String never shows a password.
type Address struct {
	hosts    []string // host:port; of the sentinels, if master is set
	master   string   // name of the set that sentinels watch
	tls      bool
	username string
	password string
	database int
}

const (
	defaultPort  = "6379"
	sentinelPort = "26379"
	maxDatabase  = 1 << 16
)

// ParseAddress parses the address of a store:
//
//	redis://[[user]:password@]host[:port][/database]     one server
//	rediss://…                                           the same over TLS
//	redis://host:port,host:port                          a cluster; each host may have the scheme
//	redis+sentinel://…@host:port,host:port/name[/database]  the server that sentinels name
//
// The errors do not contain the text, which may hold a password.
func ParseAddress(text string) (*Address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	a := &Address{tls: scheme == "rediss" || scheme == "rediss+sentinel"}
	sentinel := strings.HasSuffix(scheme, "+sentinel")
	if base := strings.TrimSuffix(scheme, "+sentinel"); !found || base != "redis" && base != "rediss" {
		return nil, errors.New("must begin with redis://, rediss:// or redis+sentinel://")
	}
	if strings.ContainsAny(rest, "?# ") {
		return nil, errors.New("must have no parameters, fragment or spaces; write special characters of a password percent-encoded")
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		a.username, err1 = url.PathUnescape(user)
		a.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return nil, errors.New("has a user or password that is not percent-encoded correctly")
		}
		rest = rest[i+1:]
	}
	hosts, path, _ := strings.Cut(strings.ReplaceAll(rest, ","+scheme+"://", ","), "/")
	if err := a.parseHosts(hosts, sentinel); err != nil {
		return nil, err
	}
	if sentinel {
		if a.master, path, _ = strings.Cut(path, "/"); a.master == "" {
			return nil, errors.New("must name the set that the sentinels watch, as in redis+sentinel://host:26379/mymaster")
		}
	}
	if path != "" {
		n, err := strconv.ParseUint(path, 10, 32)
		if err != nil || n >= maxDatabase {
			return nil, fmt.Errorf("%q is not the number of a database", path)
		}
		a.database = int(n)
	}
	if a.isCluster() && a.database != 0 {
		return nil, errors.New("must name no database: a cluster has only one")
	}
	return a, nil
}

// parseHosts parses host:port,host:port.
func (a *Address) parseHosts(text string, sentinel bool) error {
	port := defaultPort
	if sentinel {
		port = sentinelPort
	}
	for one := range strings.SplitSeq(text, ",") {
		if _, _, err := net.SplitHostPort(one); err != nil {
			one = net.JoinHostPort(strings.Trim(one, "[]"), port)
		}
		host, number, _ := net.SplitHostPort(one)
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 || host == "" {
			return errors.New("must have host:port after the scheme, or several of them separated by commas")
		}
		a.hosts = append(a.hosts, one)
	}
	return nil
}

func (a *Address) isCluster() bool { return a.master == "" && len(a.hosts) > 1 }

func (a *Address) tlsConfig() *tls.Config {
	if !a.tls {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

// String returns the address with *** in the place of a password.
func (a *Address) String() string {
	s := "redis"
	if a.tls {
		s = "rediss"
	}
	if a.master != "" {
		s += "+sentinel"
	}
	s += "://"
	if a.password != "" {
		s += a.username + ":***@"
	} else if a.username != "" {
		s += a.username + "@"
	}
	s += strings.Join(a.hosts, ",")
	if a.master != "" {
		s += "/" + a.master
	}
	if a.database != 0 {
		s += "/" + strconv.Itoa(a.database)
	}
	return s
}
