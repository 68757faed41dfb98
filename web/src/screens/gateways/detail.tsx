import { Outlet } from '@tanstack/react-router';

export default function Gateway() {
  return <Outlet />;
}
