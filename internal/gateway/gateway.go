// Package gateway defines gateways, their routes and the revisions of their
// route tables, with the rules for what users may give (specification,
// Gateway, Route; contract, 3.3, 4.1, 4.2, 5).
package gateway

import (
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// DefaultTimeout is the time to the head of the upstream's answer for a
// gateway that sets none.
const DefaultTimeout = "60s"

// Gateway is the stored record of a gateway. Empty strings, zero values and nil
// are absent values.
type Gateway struct {
	ID          string
	AccountID   string
	Name        string
	Upstream    Upstream
	Hostname    string // given, or made from ID and the gateway domain; lower case
	HostGiven   bool
	GlobalLimit ratelimit.Config // Sustained and Burst alone
	Timeout     string           // a Go duration as given

	CORS         *CORS
	MaxBodyBytes int64
	Revision     int64 // number of the revision in force, 0 before the first
	CreatedAt    time.Time

	// Version grows with every change that a management call makes; the ETag.
	Version int64
}

// CORS is a gateway's answer to browsers of other origins.
type CORS struct {
	Origins []string `json:"origins"`
	Methods []string `json:"methods"`
	Headers []string `json:"headers"`
	MaxAge  int      `json:"max_age"` // seconds
}

// Source tells what made a route or a revision.
type Source string

// The sources of routes (API, Spec, Config) and of revisions (CLI, API,
// Dashboard, Repository, Rollback).
const (
	API        Source = "api"
	Spec       Source = "spec"
	Config     Source = "config"
	CLI        Source = "cli"
	Dashboard  Source = "dashboard"
	Repository Source = "repository"
	Rollback   Source = "rollback"
)

// Auth tells whether a route asks for a key.
type Auth string

// The kinds of authentication.
const (
	AuthKey  Auth = "key"
	AuthNone Auth = "none" // a public route
)

// Route is the stored record of a route.
type Route struct {
	ID        string
	GatewayID string
	Path      string   // a template, or one that ends in /*
	Methods   []string // upper case, sorted, without repetition
	RateLimit ratelimit.Config
	// LimitByAPI tells that RateLimit was set through the API, so that a spec
	// push keeps it unless the spec carries one.
	LimitByAPI bool
	Auth       Auth
	Source     Source
	CreatedAt  time.Time
	Version    int64 // the ETag
}

// RouteSpec is a route as a document or a user describes it, before it has an
// identity.
type RouteSpec struct {
	Path      string
	Methods   []string
	RateLimit ratelimit.Config
	Auth      Auth
}

// DocumentKind tells what kind of document a revision came from.
type DocumentKind string

// The kinds of documents.
const (
	SpecDocument   DocumentKind = "spec"
	ConfigDocument DocumentKind = "config"
)

// Revision is the stored record of one push: the document as it was received,
// and the route table that it made, limits included, for a rollback.
type Revision struct {
	ID        string
	GatewayID string
	Number    int64 // from 1, without gaps, for each gateway
	Source    Source
	Kind      DocumentKind
	Author    string
	Commit    string
	CreatedAt time.Time
	Added     int
	Removed   int
	Changed   int

	// Content and Routes are filled where one revision is read, not in lists.
	Content []byte
	Routes  []Route
}
