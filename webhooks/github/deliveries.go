package github

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	gh "github.com/google/go-github/v62/github"

	"berth/webhooks"
	"berth/webhooks/forge"
)

// hookPath ends the URL of a webhook of Berth.
const hookPath = "/webhooks/github"

// entry is an attempt at a delivery in GitHub's log, which GitHub keeps for three days.
type entry struct {
	id   int64
	hook int64 // webhook of the repository; 0: the App's
}

// deliveryLog is GitHub's log of the deliveries about a repository.
type deliveryLog struct{ *repository }

// Deliveries lists the deliveries about this repository since a time, the newest of each
// webhook first: of the App's webhook, or of the repository's webhooks with Berth's
// path. It returns an error if this webhook is missing, or the token may not read it.
func (f *deliveryLog) Deliveries(ctx context.Context, since time.Time) ([]forge.Logged, error) {
	out, err := f.deliveries(ctx, since)
	if err != nil {
		return out, fmt.Errorf("github: read the log of deliveries: %w", err)
	}
	return out, nil
}

func (f *deliveryLog) deliveries(ctx context.Context, since time.Time) ([]forge.Logged, error) {
	if f.app != nil {
		repo, _, err := f.client.Repositories.Get(op(ctx, "get_repository"), f.o.Owner, f.o.Repo)
		if err != nil {
			return nil, explain(err)
		}
		// An App's log covers all repositories of its installations.
		return f.logged(since, 0, repo.GetID(), func(o *gh.ListCursorOptions) ([]*gh.HookDelivery, *gh.Response, error) {
			return f.app.Apps.ListHookDeliveries(op(ctx, "list_deliveries"), o)
		})
	}
	var hooks []int64
	err := f.each(func(o gh.ListOptions) (*gh.Response, error) {
		list, resp, err := f.client.Repositories.ListHooks(op(ctx, "list_hooks"), f.o.Owner, f.o.Repo, &o)
		for _, h := range list {
			if to, err := url.Parse(h.GetConfig().GetURL()); err == nil && strings.HasSuffix(strings.TrimSuffix(to.Path, "/"), hookPath) {
				hooks = append(hooks, h.GetID())
			}
		}
		return resp, err
	})
	if err != nil {
		return nil, fmt.Errorf("%w (the token must be allowed to read the repository's webhooks)", err)
	}
	if len(hooks) == 0 {
		return nil, fmt.Errorf("no webhook of the repository has a URL that ends with %s", hookPath)
	}
	var out []forge.Logged
	var more error
	for _, id := range hooks {
		list, err := f.logged(since, id, 0, func(o *gh.ListCursorOptions) ([]*gh.HookDelivery, *gh.Response, error) {
			return f.client.Repositories.ListHookDeliveries(op(ctx, "list_deliveries"), f.o.Owner, f.o.Repo, id, o)
		})
		if err != nil && !errors.Is(err, forge.ErrLogTooLong) {
			return nil, err
		}
		out, more = append(out, list...), errors.Join(more, err)
	}
	return out, more
}

// logged reads a log back to since, of one repository, or of all if repo is 0.
func (f *deliveryLog) logged(
	since time.Time, hook, repo int64, one func(*gh.ListCursorOptions) ([]*gh.HookDelivery, *gh.Response, error),
) ([]forge.Logged, error) {
	var out []forge.Logged
	opt := gh.ListCursorOptions{PerPage: pageSize}
	for range maxPages {
		list, resp, err := one(&opt)
		if err != nil {
			return nil, explain(err)
		}
		for _, d := range list {
			when := d.GetDeliveredAt().UTC()
			if when.Before(since) {
				return out, nil // the newest come first
			}
			if repo != 0 && d.GetRepositoryID() != 0 && d.GetRepositoryID() != repo {
				continue
			}
			out = append(out, forge.Logged{
				ID: d.GetGUID(), Event: d.GetEvent(), IsIgnored: !isEventRead(d.GetEvent()), IsRerun: isRerun(d.GetEvent(), d.GetAction()),
				Code: d.GetStatusCode(), When: when, Entry: entry{d.GetID(), hook},
			})
		}
		if opt.Cursor = resp.Cursor; opt.Cursor == "" {
			return out, nil
		}
	}
	return out, fmt.Errorf("%w: it has more than %d pages", forge.ErrLogTooLong, maxPages)
}

// isRerun reports whether an event says that a user requested checks again.
func isRerun(event, action string) bool {
	return (event == "check_run" || event == "check_suite") && (action == "rerequested" || action == "requested_action")
}

// Delivery reads the delivery of an entry, as if it had arrived; forge.ErrUnread if its
// body is not understood, reconciler.ErrNotFound if the log has it no more.
func (f *deliveryLog) Delivery(ctx context.Context, l forge.Logged) (webhooks.Delivery, error) {
	at, _ := l.Entry.(entry)
	var got *gh.HookDelivery
	var err error
	if at.hook == 0 && f.app != nil {
		got, _, err = f.app.Apps.GetHookDelivery(op(ctx, "get_delivery"), at.id)
	} else {
		got, _, err = f.client.Repositories.GetHookDelivery(op(ctx, "get_delivery"), f.o.Owner, f.o.Repo, at.hook, at.id)
	}
	if err != nil {
		return webhooks.Delivery{}, fmt.Errorf("github: read delivery %d: %w", at.id, missing(err))
	}
	if got.GetGUID() != l.ID || got.Request == nil || got.Request.RawPayload == nil {
		return webhooks.Delivery{}, fmt.Errorf("github: delivery %d: the log has no body of %s", at.id, plain(l.ID))
	}
	d, err := readDelivery(clip(l.ID), clip(got.GetEvent()), "application/json", *got.Request.RawPayload)
	if err != nil {
		err = fmt.Errorf("%w: %w", forge.ErrUnread, err)
	}
	return d, err
}
