// Package canary judges a canary: whether the new upstream of a step is worse than the other one, so that the canary is
// aborted, or the step has lasted long enough (targets.md, section 8).
//
// It is pure: it is given what nodes have counted, and the time since the step began.
//
//	Step.Add, Step.AddLatencies ──► Step.Decide ──► Decision: wait, advance, abort or pause, with its explanation
//
// Errors are compared by the bounds of a beta-binomial confidence sequence (Bounds). They hold at all times together, so the
// leader may look every 5 s without finding a difference by chance.
package canary
