package githubtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Options of a Server. RepoDir, Owner, Repo and Log are needed.
type Options struct {
	RepoDir     string // a bare repository; its HEAD names the default branch
	Owner, Repo string
	Tokens      map[string]Token // by token
	App         *App             // makes more tokens; nil: no App
	// Permissions of users in the repository: admin, maintain, write, triage, read.
	// Others have none.
	Permissions map[string]string
	// Required lists the checks that must pass before the merge queue merges.
	Required []string
	// Secret signs deliveries to WebhookURL; "": no webhook.
	Secret     []byte
	WebhookURL string
	Limits     Limits
	// Latency of each answer, Git's included; answers are concurrent.
	Latency time.Duration
	Now     func() time.Time // time.Now if nil
	Log     *slog.Logger
}

// Server is the test server. Each part owns its state; one mutex guards them all. All
// methods are safe for concurrent use.
type Server struct {
	*base
	*accounts
	*repository
	*pulls
	*reviews
	*comments
	*checks
	*statuses
	*mergeQueue
	*deliveryLog
	*limiter
	*faults
	*traffic

	http   *http.Server
	served chan struct{}
}

// New makes a server for a repository and starts it.
func New(o Options) (*Server, error) {
	if o.RepoDir == "" || o.Owner == "" || o.Repo == "" || o.Log == nil {
		return nil, errors.New("githubtest: RepoDir, Owner, Repo and Log are needed")
	}
	if o.WebhookURL != "" && len(o.Secret) == 0 {
		return nil, errors.New("githubtest: deliveries need a Secret")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits.setDefaults()
	desc, err := loadDescription()
	if err != nil {
		return nil, err
	}
	g := git{o.RepoDir}
	main, err := g.run("symbolic-ref", "--short", "HEAD")
	if err != nil {
		return nil, err
	}
	branches, err := g.branches()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &base{o: o, url: "http://" + l.Addr().String(), desc: desc, webhook: newCourier(o), lastID: 1000}
	a := &accounts{base: b, ids: map[string]int64{}, deleted: map[string]bool{}, permissions: map[string]string{},
		issued: map[string]issued{}}
	maps.Copy(a.permissions, o.Permissions)
	r := &repository{accounts: a, git: g, main: main, branches: branches, forks: map[string]*fork{}, parents: map[string][]string{}}
	p := &pulls{repository: r}
	c, st := &checks{pulls: p}, &statuses{repository: r}
	p.queue = &mergeQueue{pulls: p, checks: c, statuses: st}
	st.added = p.queue.advance
	s := &Server{
		base: b, accounts: a, repository: r, pulls: p, reviews: &reviews{pulls: p}, comments: &comments{pulls: p}, checks: c, statuses: st,
		mergeQueue: p.queue, deliveryLog: &deliveryLog{a}, limiter: &limiter{base: b, use: map[string]*budget{}},
		faults: &faults{base: b}, traffic: &traffic{base: b}, served: make(chan struct{}),
	}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("githubtest: server ended", "error", err)
		}
	}()
	return s, nil
}

// Close stops the server and its deliveries, waits for their end, and deletes the forks.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
	<-s.served
	s.webhook.close()
	defer s.lock()()
	for _, f := range s.forks {
		os.RemoveAll(filepath.Dir(f.git.dir))
	}
}

// APIURL is the base URL of the REST API, with a slash at the end.
func (s *Server) APIURL() string { return s.url + "/" }

// CloneURL is the Git URL. Its password is any of the tokens.
func (s *Server) CloneURL() string { return fmt.Sprintf("%s/%s/%s.git", s.url, s.o.Owner, s.o.Repo) }

// routes are the operations served. Each runs with the lock held.
func (s *Server) routes() []route {
	const (
		repo = "/repos/{owner}/{repo}"
		talk = "issues|pull_requests" // for comments on pull requests
	)
	return []route{
		{"GET /user", "", s.getUser},
		{"GET /rate_limit", "", s.getRate},
		{"POST /app/installations/{installation_id}/access_tokens", "", withBody(s.createToken)},
		{"GET /app/hook/deliveries", "", s.listDeliveries},
		{"GET /app/hook/deliveries/{delivery_id}", "", s.getDelivery},
		{"GET " + repo, "", s.getRepository},
		{"GET " + repo + "/hooks", "repository_hooks", s.listHooks},
		{"GET " + repo + "/hooks/{hook_id}/deliveries", "repository_hooks", s.listDeliveries},
		{"GET " + repo + "/hooks/{hook_id}/deliveries/{delivery_id}", "repository_hooks", s.getDelivery},
		{"GET " + repo + "/collaborators/{username}/permission", "", s.getPermission},

		{"GET " + repo + "/pulls", "pull_requests", s.listPulls},
		{"GET " + repo + "/pulls/{pull_number}", "pull_requests", s.getPull},
		{"GET " + repo + "/pulls/{pull_number}/reviews", "pull_requests", s.listReviews},
		{"GET " + repo + "/commits/{commit_sha}/pulls", "pull_requests|contents", s.listPullsOfCommit},
		{"GET " + repo + "/commits/{ref}/check-runs", "checks", s.listChecks},
		{"POST " + repo + "/check-runs", "checks", withBody(s.createCheck)},
		{"PATCH " + repo + "/check-runs/{check_run_id}", "checks", withBody(s.updateCheck)},
		{"GET " + repo + "/commits/{ref}/statuses", "statuses", s.listStatuses},
		{"POST " + repo + "/statuses/{sha}", "statuses", withBody(s.createStatus)},

		{"GET " + repo + "/issues/comments", talk, s.listAllComments},
		{"GET " + repo + "/issues/{issue_number}/comments", talk, s.listComments},
		{"POST " + repo + "/issues/{issue_number}/comments", talk, withBody(s.createComment)},
		{"GET " + repo + "/issues/comments/{comment_id}", talk, s.getComment},
		{"PATCH " + repo + "/issues/comments/{comment_id}", talk, withBody(s.updateComment)},
		{"DELETE " + repo + "/issues/comments/{comment_id}", talk, s.deleteComment},
		{"GET " + repo + "/issues/comments/{comment_id}/reactions", talk, s.listReactions},
		{"POST " + repo + "/issues/comments/{comment_id}/reactions", talk, withBody(s.createReaction)},
	}
}
