package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/gateway"
)

// GatewayReader finds gateways.
type GatewayReader interface {
	Gateway(ctx context.Context, accountID, gatewayID string) (*gateway.Gateway, error)
	Gateways(ctx context.Context, accountID string, p Page) ([]gateway.Gateway, error)
	// HasGateways reports whether the account has at least n gateways.
	HasGateways(ctx context.Context, accountID string, n int) (bool, error)
	// DefaultGateway returns the gateway with Default set.
	DefaultGateway(ctx context.Context) (*gateway.Gateway, error)
	// HostnameOwner returns the account whose gateway has the hostname; "" if none has.
	HostnameOwner(ctx context.Context, hostname string) (accountID string, err error)
	// GatewayNamed returns a gateway of the account that has the name, other than exceptID; "" if none has.
	GatewayNamed(ctx context.Context, accountID, name, exceptID string) (gatewayID string, err error)
	// EndedGateways returns up to limit deleted gateways of all accounts whose deletion is not finished, and
	// EndedGateway returns one of them, or nil if its deletion is finished.
	EndedGateways(ctx context.Context, limit int) ([]EndedGateway, error)
	EndedGateway(ctx context.Context, gatewayID string) (*EndedGateway, error)
	// GivenHostnames returns the hostnames that the account has given to its gateways,
	// without those that Keygate generated.
	GivenHostnames(ctx context.Context, accountID string) ([]string, error)
}

// GatewayStore finds and changes gateways. A hostname that is in use, by any account, is
// fault.Conflict with the field "hostname", and so is, with the field "name", a name that another gateway of the
// account has, if neither has SharesName set. The caller sets Version, and clears Default of one
// gateway before it sets Default of another.
type GatewayStore interface {
	GatewayReader
	InsertGateway(ctx context.Context, g *gateway.Gateway) error
	UpdateGateway(ctx context.Context, g *gateway.Gateway) error
	// EndGateway notes that a gateway is being deleted. From then on, every key that is restricted to it is read as
	// revoked at e.At, with the version that it gets when the revocation is written. For every method except
	// KeysToRevoke, the key is revoked.
	EndGateway(ctx context.Context, e *EndedGateway) error
	// UpdateEndedGateway writes RoutesTo.
	UpdateEndedGateway(ctx context.Context, e *EndedGateway) error
	// FinishGateway removes what EndGateway noted. All keys that KeysToRevoke returned must be revoked.
	FinishGateway(ctx context.Context, gatewayID string) error
	// DeleteGateway removes the gateway with its repository, its routes and its revisions, which
	// Trimmer.TrimRevisions and TrimTables remove from the disk. If the gateway has ended and is not finished, its
	// routes stay for EndedRoutes.
	DeleteGateway(ctx context.Context, accountID, gatewayID string) error
}

// RouteReader finds routes.
type RouteReader interface {
	Route(ctx context.Context, gatewayID, routeID string) (*gateway.Route, error)
	Routes(ctx context.Context, gatewayID string, p Page) ([]gateway.Route, error)
	// RouteTable returns all routes of a gateway, oldest first.
	RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error)
	// EndedRoutes returns up to limit routes of a gateway that has ended, oldest first, beginning behind e.RoutesTo.
	EndedRoutes(ctx context.Context, e *EndedGateway, limit int) ([]gateway.Route, error)
	// CountRoutes returns the number of routes of all gateways of an account. Its cost does not
	// depend on that number.
	CountRoutes(ctx context.Context, accountID string) (int, error)
	// TableVersion returns a value that differs after any change of the gateway's routes.
	TableVersion(ctx context.Context, gatewayID string) (TableVersion, error)
}

// TableVersion identifies the routes of a gateway at one moment.
type TableVersion struct{ Table, Version int64 }

// RouteStore finds and changes routes. An update or deletion of a route that does not
// exist is fault.NotFound. The caller sets Version.
type RouteStore interface {
	RouteReader
	InsertRoutes(ctx context.Context, routes []gateway.Route) error
	UpdateRoutes(ctx context.Context, routes []gateway.Route) error
	DeleteRoutes(ctx context.Context, gatewayID string, routeIDs []string) error
}

// RevisionReader finds revisions.
type RevisionReader interface {
	// Revision returns one revision with its Content and Routes.
	Revision(ctx context.Context, gatewayID string, number int64) (*gateway.Revision, error)
	// Revisions lists revisions without Content and Routes, newest first; before is the
	// number that the page follows, or 0 for the first page.
	Revisions(ctx context.Context, gatewayID string, limit int, before int64) ([]gateway.Revision, error)
	// HasOldRevisions reports whether Trimmer.TrimRevisions would remove anything. Its cost does
	// not depend on the number of revisions.
	HasOldRevisions(ctx context.Context, k KeptRevisions) (bool, error)
}

// KeptRevisions says which revisions of a gateway are kept: the newest, and the revisions since a
// time, as far as the revisions of the account do not take too many bytes. The last one is always
// kept.
type KeptRevisions struct {
	Newest       int       // at least 1
	Since        time.Time // when they were created
	AccountBytes int64     // stored for one account
}

// RevisionStore finds and adds revisions.
type RevisionStore interface {
	RevisionReader
	InsertRevision(ctx context.Context, r *gateway.Revision) error
	// InsertPrepared adds the revision that Store.Prepare returned, and makes its routes the
	// gateway's route table in place of the present one.
	InsertPrepared(ctx context.Context, p Prepared) error
}

// Prepared is a revision that a store has encoded, and perhaps stored out of sight.
type Prepared any
