// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
)

// proxyInfo is what a client over HTTP has to know.
type proxyInfo struct {
	URL        string `json:"url"`
	Token      string `json:"token"`
	ContractID string `json:"contractId"`
	Dataset    string `json:"dataset"`
	Purpose    string `json:"purpose"`
}

func (c *cli) proxyCmd() *cobra.Command {
	var id, listen string
	var stdio bool
	cmd := &cobra.Command{
		Use:   "proxy --contract ID [--listen 127.0.0.1:PORT | --stdio]",
		Short: "Let an MCP client on this machine use a contract",
		Long: "Let an MCP client on this machine use a contract: a local MCP server whose calls the running node signs and records,\n" +
			"as it does for `treaty query`. A refusal is the data owner's decision and reaches the client word for word.\n" +
			"Over HTTP a client has to show the token that is printed at start; with --stdio the client starts this command itself.",
		Example: "  treaty proxy --contract ctr_x1Yz --stdio\n  treaty proxy --contract ctr_x1Yz --listen 127.0.0.1:8765",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := mcp.CheckListen(listen); err != nil {
				return usage("--listen: %v", err)
			}
			return verb(func(cmd *cobra.Command, _ []string) error { return c.proxy(cmd.Context(), id, listen, stdio) })(cmd, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&id, "contract", "", "contract id")
	f.StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to serve MCP over HTTP on (port 0: any that is free)")
	f.BoolVar(&stdio, "stdio", false, "serve the client that started this command over standard input and output")
	_ = cmd.MarkFlagRequired("contract")
	cmd.MarkFlagsMutuallyExclusive("listen", "stdio")
	return cmd
}

func (c *cli) proxy(ctx context.Context, id, listen string, stdio bool) error {
	var rec httpapi.Contract
	if err := c.admin().Get(ctx, "/contracts/"+id, &rec); err != nil {
		return err
	}
	if rec.Role != "buyer" {
		return usage("in contract %s this node is the vendor; the buyer's node has the proxy", id)
	}
	agreed, err := contract.Parse(rec.Contract)
	if err != nil {
		return err
	}
	p := mcp.NewProxy(agreed, c.forward(agreed.ID), node.Version)
	if stdio {
		return p.Serve(ctx, os.Stdin, stream{c.stdout})
	}
	return c.proxyHTTP(ctx, p, listen, proxyInfo{ContractID: agreed.ID, Dataset: agreed.Dataset, Purpose: agreed.Purpose})
}

// stream is a writer that others may close without effect.
type stream struct{ io.Writer }

func (stream) Close() error { return nil }

// forward has the running node perform a tool call.
func (c *cli) forward(id string) mcp.Forward {
	admin := c.admin()
	return func(ctx context.Context, tool string, arguments json.RawMessage) (raw []byte, err error) {
		err = admin.Post(ctx, "/tool", httpapi.ToolRequest{ContractID: id, Tool: tool, Arguments: arguments}, &raw)
		var e *httpapi.Error
		if errors.As(err, &e) && e.Kind == httpapi.KindRefused { // by this company's own policy
			return nil, &mcp.Refused{Code: e.Code, Text: e.Error()}
		}
		return raw, err
	}
}

func (c *cli) proxyHTTP(ctx context.Context, p *mcp.Proxy, listen string, info proxyInfo) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return usage("--listen: %v", err)
	}
	info.URL, info.Token = "http://"+l.Addr().String()+mcp.ProxyPath, rand.Text()
	server := &http.Server{
		Handler: p.Handler(info.Token), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	if err := c.print(info, func(w io.Writer) {
		fmt.Fprintf(w, "contract  %s (dataset %s, purpose %q)\nurl       %s\ntoken     %s\n\nClients send the header  Authorization: Bearer %s\nCtrl-C ends the proxy and the token.\n",
			info.ContractID, info.Dataset, info.Purpose, info.URL, info.Token, info.Token)
	}); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			return server.Close() // calls that did not end in time
		}
		return nil
	}
}
