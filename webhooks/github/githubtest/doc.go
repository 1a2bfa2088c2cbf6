// Package githubtest is a GitHub for one repository: the REST calls Berth makes,
// the webhooks it listens to and the Git transport, over a real bare repository.
//
// It is there to be right about what hurts. Each request and each answer is
// checked against GitHub's own published description; what that does not say but
// GitHub does (limits, who may do what, paging, conditional reads) is enforced
// here; and it can fail in the ways a network and a forge fail. What does not
// fit is a violation, and a test asks for Violations at its end.
//
// `berth-lab demo` uses it too: it is a forge one can look at without an account.
// README.md says what it does not model.
//
// It must not know Berth: it has no idea what a plan is.
package githubtest
