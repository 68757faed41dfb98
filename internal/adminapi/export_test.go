package adminapi

// SignInAddresses returns of how many addresses the failed attempts to sign in are remembered.
func SignInAddresses(a *API) int {
	a.signIns.mu.Lock()
	defer a.signIns.mu.Unlock()
	return len(a.signIns.failures)
}
