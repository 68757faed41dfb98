import { CSPProvider } from '@base-ui/react/csp-provider';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { queries } from './api/hooks';
import './app.css';
import { applyTheme } from './lib/theme';
import { router } from './routes';

applyTheme();
createRoot(document.getElementById('root')!).render(
  <StrictMode>
    {/* The policy of the server forbids style elements. */}
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
);
