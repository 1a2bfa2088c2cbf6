package main

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/ssh"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/cmd/internal/localestate"
	"berth/schema"
	"berth/webhooks/api"
)

func newTokenCmd() *cobra.Command {
	var (
		account, key, keyID, audience, repo string
		ttl                                 time.Duration
		output                              cli.Output
	)
	cmd := &cobra.Command{
		Use:   "token --service-account TENANT.PROJECT/NAME --key FILE --audience ESTATE",
		Short: "Make a service account's token for the read API",
		Long: `Print a token for the read API that expires after --ttl. The key is the private half
of one of the account's public_keys in force: an OpenSSH or PEM file without a
passphrase, as ssh-keygen -t ed25519 -N "" makes it. The audience is the name of the
estate in berth.yaml. The account of a tenant is TENANT/NAME.

In a clone of the estate the token is checked as the API checks it, and an unknown
account or key is a warning. With --repo it is an error.

Exit status: 0, 1 the API would refuse the token, or the key cannot be read, 2 usage.`,
		Example: `  berth token --service-account physics.lattice/ci --key id_ed25519 --audience campus`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"service-account", "key", "audience"} {
				if f := cmd.Flags().Lookup(name); f.Value.String() == "" {
					_, usage := pflag.UnquoteUsage(f)
					return cli.Usage(fmt.Errorf("token: --%s is missing: %s", name, usage))
				}
			}
			name, err := api.ParseIssuer(account)
			if err != nil {
				return cli.Usage(fmt.Errorf("--service-account: %w", err))
			}
			signer, err := readSigner(key)
			if err != nil {
				return err
			}
			token, err := api.Mint(name, keyID, signer, audience, ttl, time.Now())
			if err != nil {
				return err
			}
			err = inspect.Source{Repo: repo}.Estate(cmd.Context(), func(e *inspect.Estate) error {
				return checkToken(cmd.Context(), e, name, token, audience)
			})
			switch {
			case err != nil && repo != "":
				return fmt.Errorf("token: %w", err)
			case err != nil && !errors.Is(err, localestate.ErrNoEstate): // this clone may be older than what is in force
				fmt.Fprintf(cmd.ErrOrStderr(), "berth: token: by this clone, which git fetch brings up to date: %v\n", err)
			}
			return output.Print(cmd.OutOrStdout(), tokenReport{"berth.token/v1", token})
		},
	}
	output.Flag(cmd)
	f := cmd.Flags()
	f.StringVar(&account, "service-account", "", "service account: TENANT.PROJECT/NAME, or TENANT/NAME")
	f.StringVar(&key, "key", "", "`file` with the private key")
	f.StringVar(&keyID, "key-id", "current", "id of the public key in the ServiceAccount document")
	f.StringVar(&audience, "audience", "", "name of the estate that the token is for")
	f.StringVar(&repo, "repo", "",
		"Git repository of the estate that the token is checked against (default: the one of the working directory, if it has an estate)")
	f.DurationVar(&ttl, "ttl", 15*time.Minute, "lifetime of the token, at most 1h")
	return cmd
}

// checkToken reports that the API of an estate would refuse a token.
func checkToken(ctx context.Context, e *inspect.Estate, account schema.Key, token, audience string) error {
	if _, err := e.List(ctx, schema.KindServiceAccount, account.ResourceName()); err != nil {
		return err
	}
	desired, err := e.Desired(ctx)
	if err != nil {
		return err
	}
	if _, err := api.Verify(token, audience, desired, time.Now()); err != nil {
		return fmt.Errorf("the API would refuse this token: %w; berth describe serviceaccount %s shows the account and its keys, and "+
			"--key-id names one", err, account.ResourceName())
	}
	return nil
}

// tokenReport is the JSON of `berth token`.
type tokenReport struct {
	Format string `json:"format"` // berth.token/v1
	Token  string `json:"token"`
}

// Text implements cli.Report.
func (r tokenReport) Text(p *cli.Page) error {
	_, err := fmt.Fprintln(p, r.Token)
	return err
}

// readSigner reads a private key file. Errors never contain the key.
func readSigner(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	raw, err := ssh.ParseRawPrivateKey(data)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("private key %s has a passphrase: use one without, for that account alone", path)
	}
	if _, _, _, _, notPublic := ssh.ParseAuthorizedKey(data); err != nil && notPublic == nil {
		return nil, fmt.Errorf("%s holds a public key: name the private one, which is usually the path without .pub", path)
	}
	if err != nil {
		return nil, fmt.Errorf("private key %s cannot be read: make one with ssh-keygen -t ed25519 -N \"\"", path)
	}
	if k, ok := raw.(*ed25519.PrivateKey); ok {
		return *k, nil
	}
	if k, ok := raw.(crypto.Signer); ok {
		return k, nil
	}
	return nil, fmt.Errorf("private key %s cannot sign: make one with ssh-keygen -t ed25519 -N \"\"", path)
}
