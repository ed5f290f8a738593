// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxTools bounds how many tools are listed.
const maxTools = 256

// Tools asks a data plane for its tools by a real tools/list and returns their names. client signs.
func Tools(ctx context.Context, client *http.Client, endpoint string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "treaty", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransport, err)
	}
	defer session.Close()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransport, err)
	}
	if len(list.Tools) > maxTools {
		return nil, fmt.Errorf("%w: more than %d tools", ErrAnswer, maxTools)
	}
	names := make([]string, 0, len(list.Tools))
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}
