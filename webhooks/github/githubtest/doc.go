// Package githubtest is a GitHub test server for one repository: the REST calls that
// Berth makes, the webhooks it receives, and the Git transport, over a real bare
// repository.
//
// Each request and each answer is checked against GitHub's published description. The
// server also enforces what the description leaves out (limits, permissions, paging,
// conditional reads), and can fail as networks and forges fail. A mismatch is a
// violation; a test checks Violations at its end.
//
// `berth-lab demo` uses it too. README.md lists the differences from GitHub.
//
// It must not know Berth.
package githubtest
