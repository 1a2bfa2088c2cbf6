package pulls

import (
	"maps"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
)

// headChanges is how long after a change of a pull request a second one may look
// like it.
const headChanges = 2 * time.Second

// openPull is an open pull request and its last known state.
type openPull struct {
	reconciler.PullRequest
	stale   bool   // it may have changed since
	fetched string // the head that the mirror has
	head    headRequests
}

// headRequests has the requests in the head of a pull request, and its approvers.
type headRequests struct {
	of         reconciler.PullRequest // the pull request that was asked for
	breakGlass string
	acks       []string
	approvers  []string
	// unsure: the pull request had just changed. A forge reports that in whole
	// seconds, so it may change once more and report the same.
	unsure bool
}

// openPulls are the open pull requests to one branch, as far as they are known.
type openPulls struct {
	branch string

	mu     sync.Mutex
	pulls  map[int]*openPull
	listed bool // they were listed in this run
}

func newOpenPulls(branch string) *openPulls {
	return &openPulls{branch: branch, pulls: map[int]*openPull{}}
}

// isOurs reports whether a pull request is open and to the branch.
func (o *openPulls) isOurs(pr reconciler.PullRequest) bool {
	return pr.Open && pr.BaseBranch == o.branch
}

// take takes in a list of all open pull requests. It returns those to plan: new and
// changed ones, those that isShown does not have, and those that are not open any
// more. first says that it is the first list of this run.
func (o *openPulls) take(list map[int]reconciler.PullRequest, isShown func(pull int) bool) (changed []int, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, o.listed = !o.listed, true
	for n, pr := range list {
		p := o.pulls[n]
		if p == nil {
			p = &openPull{}
			o.pulls[n] = p
		} else if p.PullRequest == pr && !p.head.unsure && isShown(n) {
			continue
		}
		p.PullRequest = pr
		changed = append(changed, n)
	}
	for n, p := range o.pulls {
		if _, ok := list[n]; !ok {
			p.stale = true
			changed = append(changed, n)
		}
	}
	return changed, first
}

// author returns the author of a pull request; false if it was not read yet.
func (o *openPulls) author(number int) (login string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pulls[number]
	if p == nil {
		return "", false
	}
	return p.Author, true
}

// markStale has a pull request read again before it is planned.
func (o *openPulls) markStale(number int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pulls[number]; p != nil {
		p.stale = true
	}
}

// get is a copy of a pull request that need not be read again; false if it has to
// be, and counts as read from now on.
func (o *openPulls) get(number int) (openPull, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pulls[number]
	if p == nil {
		return openPull{}, false
	}
	known := !p.stale
	p.stale = false
	return *p, known
}

// put takes in a pull request that was read, and returns a copy; false if it is not
// open any more, and was removed.
func (o *openPulls) put(pr reconciler.PullRequest) (openPull, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOurs(pr) {
		delete(o.pulls, pr.Number)
		return openPull{}, false
	}
	p := o.pulls[pr.Number]
	if p == nil {
		p = &openPull{}
		o.pulls[pr.Number] = p
	}
	p.PullRequest, p.head = pr, headRequests{}
	return *p, true
}

// keep stores the facts that a planning found out about its pull request.
func (o *openPulls) keep(p openPull) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.pulls[p.Number]; now != nil {
		now.fetched, now.head = p.fetched, p.head
	}
}

// setFetched notes heads that the mirror has.
func (o *openPulls) setFetched(heads map[int]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, head := range heads {
		if p := o.pulls[n]; p != nil && p.Head == head {
			p.fetched = head
		}
	}
}

// numbers lists the pull requests.
func (o *openPulls) numbers() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.pulls))
}

// hasHead reports whether a commit is the head of one.
func (o *openPulls) hasHead(commit string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pulls {
		if p.Head == commit {
			return true
		}
	}
	return false
}
