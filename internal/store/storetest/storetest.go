// Package storetest is the conformance suite for stores. An engine runs it with one call:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Engine { return open(t) })
//	}
//
// The suite uses only the engine's interfaces. What can happen to one engine alone, such as a
// locked file, is tested beside that engine. Texts contain no NUL, which not every engine can
// store.
package storetest

import (
	"context"
	"reflect"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store"
)

// Run tests an engine. open returns an empty store and closes it with t.Cleanup.
// It is called once for each test; the tests run in parallel.
func Run(t *testing.T, open func(t *testing.T) store.Engine) {
	for _, test := range []struct {
		name string
		run  func(*harness)
	}{
		{"Account", testAccount},
		{"Accounts", testAccounts},
		{"SuspendedQueue", testSuspendedQueue},
		{"RemoveAccount", testRemoveAccount},
		{"GatewayRoundTrip", testGatewayRoundTrip},
		{"GatewayRules", testGatewayRules},
		{"PreparedRevisions", testPrepared},
		{"DefaultGateway", testDefaultGateway},
		{"GatewayDelete", testGatewayDelete},
		{"Routes", testRoutes},
		{"RouteTableOfAThousand", testLargeRouteTable},
		{"CountRoutes", testCountRoutes},
		{"RevisionRoundTrip", testRevisionRoundTrip},
		{"Revisions", testRevisions},
		{"TrimRevisions", testTrimRevisions},
		{"TrimDeletedGateway", testTrimDeletedGateway},
		{"RepositoryRoundTrip", testRepositoryRoundTrip},
		{"RepositoryRules", testRepositoryRules},
		{"RepositoryTimes", testRepositoryTimes},
		{"CanaryRoundTrip", testCanaryRoundTrip},
		{"Canaries", testCanaries},
		{"CanaryShare", testCanaryShare},
		{"CanaryCounts", testCanaryCounts},
		{"CanaryLead", testCanaryLead},
		{"CanaryCountsAreBounded", testCanaryCountsAreBounded},
		{"ValidationReports", testValidationReports},
		{"Session", testSession},
		{"SessionBounds", testSessionBounds},
		{"UserRoundTrip", testUserRoundTrip},
		{"UserRules", testUserRules},
		{"UserList", testUserList},
		{"Invitations", testInvitations},
		{"UserSessions", testUserSessions},
		{"UserTokens", testUserTokens},
		{"LoginRoundTrip", testLoginRoundTrip},
		{"Logins", testLogins},
		{"UserResponses", testUserResponses},
		{"KeyRoundTrip", testKeyRoundTrip},
		{"KeyUpdate", testKeyUpdate},
		{"KeyRules", testKeyRules},
		{"KeyTouch", testKeyTouch},
		{"EndedGateway", testEndedGateway},
		{"KeysOfBucket", testKeysOfBucket},
		{"HaveDigests", testHaveDigests},
		{"KeysByHolders", testKeysByHolders},
		{"KeysToNotify", testKeysToNotify},
		{"KeyList", testKeyList},
		{"KeyListQuery", testKeyListQuery},
		{"IndexKeys", testIndexKeys},
		{"KeyImport", testKeyImport},
		{"PlanRoundTrip", testPlanRoundTrip},
		{"PlanRules", testPlanRules},
		{"PlanList", testPlanList},
		{"PlanUse", testPlanUse},
		{"IssuerRoundTrip", testIssuerRoundTrip},
		{"IssuerRules", testIssuerRules},
		{"IssuerList", testIssuerList},
		{"IssuersDue", testIssuersDue},
		{"Certificates", testCertificates},
		{"DueCertificates", testDueCertificates},
		{"CertificateNames", testCertificateNames},
		{"CertificateAccount", testCertificateAccount},
		{"IssuersInUse", testIssuersInUse},
		{"DenialRules", testDenialRules},
		{"DenialList", testDenialList},
		{"DenialTrim", testDenialTrim},
		{"OwnerRoundTrip", testOwnerRoundTrip},
		{"OwnerRules", testOwnerRules},
		{"OwnerList", testOwnerList},
		{"OwnerHasActiveKeys", testOwnerHasActiveKeys},
		{"PlanSource", testPlanSource},
		{"WebhookRoundTrip", testWebhookRoundTrip},
		{"WebhookRules", testWebhookRules},
		{"FanOut", testFanOut},
		{"FanOutModel", testFanOutModel},
		{"FanOutAtOnce", testFanOutAtOnce},
		{"FanOutTurns", testFanOutTurns},
		{"AppendEvents", testAppendEvents},
		{"EventList", testEventList},
		{"DeliveryList", testDeliveryList},
		{"Recover", testRecover},
		{"TrimDeliveries", testTrimDeliveries},
		{"QueueLease", testQueueLease},
		{"BringForward", testBringForward},
		{"QueueWants", testQueueWants},
		{"QueueNewlyDue", testQueueNewlyDue},
		{"QueueRace", testQueueRace},
		{"QueueModel", testQueueModel},
		{"QueueHealth", testQueueHealth},
		{"Stranded", testStranded},
		{"ReleaseAll", testReleaseAll},
		{"AttemptResponse", testAttemptResponse},
		{"Backlog", testBacklog},
		{"PausedEndpoint", testPausedEndpoint},
		{"Paging", testPaging},
		{"Isolation", testIsolation},
		{"Audit", testAudit},
		{"AuditLog", testAuditLog},
		{"AuditLogAcrossGroups", testAuditGroups},
		{"AuditScan", testAuditScan},
		{"AuditScanTrimmed", testAuditScanTrimmed},
		{"AuditScanOrder", testAuditScanOrder},
		{"AuditBlocks", testAuditBlocks},
		{"AuditJoin", testAuditJoin},
		{"AuditSealInterrupted", testAuditSealInterrupted},
		{"AuditManySealers", testAuditManySealers},
		{"AuditClockStep", testAuditClockStep},
		{"AuditRetention", testAuditRetention},
		{"AuditMaxBytes", testAuditMaxBytes},
		{"AuditGap", testAuditGap},
		{"AuditLargeDiffs", testAuditLargeDiffs},
		{"AuditSealsEarly", testAuditSealsEarly},
		{"AuditSecrets", testAuditSecrets},
		{"AuditMaintenance", testAuditMaintenance},
		{"AuditStartStop", testAuditStartStop},
		{"Events", testEvents},
		{"StoredResponses", testStoredResponses},
		{"LargeResponses", testLargeResponses},
		{"AccountCounts", testAccountCounts},
		{"DailyCounts", testDailyCounts},
		{"DailyClaimsAtOnce", testDailyClaimsAtOnce},
		{"QuotaModel", testQuotaModel},
		{"QuotasAtOnce", testQuotasAtOnce},
		{"QuotaEvent", testQuotaEvent},
		{"QuotaGrants", testQuotaGrants},
		{"QuotaTrim", testQuotaTrim},
		{"StrayQuotas", testStrayQuotas},
		{"RetentionClock", testRetentionClock},
		{"ChangeLog", testChangeLog},
		{"ChangeLogTrim", testChangeLogTrim},
		{"Trim", testTrim},
		{"Rollback", testRollback},
		{"Cancellation", testCancellation},
		{"CancellationAtRandom", testCancellationAtRandom},
		{"EndedTransaction", testEndedTransaction},
		{"SerializableUpdates", testSerializableUpdates},
		{"ConsistentViews", testConsistentViews},
		{"Source", testSource},
		{"SourceStops", testSourceStops},
		{"Traffic", testTraffic},
		{"TrafficReplace", testTrafficReplace},
		{"TrafficTrim", testTrafficTrim},
		{"TrafficReadIsOneState", testTrafficReadIsOneState},
		{"TrafficBytes", testTrafficBytes},
		{"UsageClosing", testUsageClosing},
		{"UsageState", testUsageState},
		{"RepeatedBatch", testRepeatedBatch},
		{"RequestRoundTrip", testRequestRoundTrip},
		{"RequestList", testRequestList},
		{"RequestsLeftOut", testRequestsLeftOut},
		{"RequestTrim", testRequestTrim},
		{"RequestBytes", testRequestBytes},
		{"RequestCut", testRequestCut},
		{"RequestCutAtOnce", testRequestCutAtOnce},
		{"RequestFlood", testRequestFlood},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(&harness{T: t, Engine: open(t)})
		})
	}
}

// harness is one test with its store.
type harness struct {
	*testing.T
	store.Engine
}

// run runs f as a subtest on the same store.
func (h *harness) run(name string, f func(h *harness)) {
	h.Helper()
	h.Run(name, func(t *testing.T) { f(&harness{T: t, Engine: h.Engine}) })
}

// update runs f in a transaction that must be committed.
func (h *harness) update(f func(ctx context.Context, tx control.Tx) error) {
	h.Helper()
	if err := h.Update(h.Context(), func(tx control.Tx) error { return f(h.Context(), tx) }); err != nil {
		h.Fatalf("Update: %v", err)
	}
}

// rejected checks that Update fails with the code, and returns the error.
func (h *harness) rejected(code fault.Code, f func(ctx context.Context, tx control.Tx) error) error {
	h.Helper()
	err := h.Update(h.Context(), func(tx control.Tx) error { return f(h.Context(), tx) })
	if got := fault.CodeOf(err); got != code {
		h.Fatalf("Update returned %v, want an error with the code %s", err, code)
	}
	return err
}

// conflict checks that Update fails with a conflict that names the field.
func (h *harness) conflict(field string, f func(ctx context.Context, tx control.Tx) error) {
	h.Helper()
	err := h.rejected(fault.Conflict, f)
	if got := faultOf(err).Field; got != field {
		h.Fatalf("the conflict names the field %q, want %q", got, field)
	}
}

// get returns what f reads in a View, which must succeed.
func get[T any](h *harness, f func(ctx context.Context, tx control.ReadTx) (T, error)) T {
	h.Helper()
	v, err := try(h, f)
	if err != nil {
		h.Fatalf("View: %v", err)
	}
	return v
}

// missing checks that f fails with fault.NotFound.
func missing[T any](h *harness, what string, f func(ctx context.Context, tx control.ReadTx) (T, error)) {
	h.Helper()
	if _, err := try(h, f); fault.CodeOf(err) != fault.NotFound {
		h.Fatalf("%s: got %v, want the code %s", what, err, fault.NotFound)
	}
}

// try returns what f reads in a View.
func try[T any](h *harness, f func(ctx context.Context, tx control.ReadTx) (T, error)) (v T, err error) {
	err = h.View(h.Context(), func(tx control.ReadTx) error {
		v, err = f(h.Context(), tx)
		return err
	})
	return v, err
}

// fataler is what both *testing.T and *rapid.T can do.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// same checks that two values are deeply equal.
func same(t fataler, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}
